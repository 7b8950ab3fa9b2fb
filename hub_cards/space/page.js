// What clicks and keys do in the results; `element` and `watch` come from gr.HTML.
// A cell of a strip leads to its passage in the text, arrow keys move along a strip, and Escape leads back to the cell.
const calm = matchMedia("(prefers-reduced-motion: reduce)").matches;
let left = null;

function showPassage(cell) {
  const anchor = document.getElementById(cell.getAttribute("href").slice(1));
  const text = anchor.closest(".dp-text");
  const number = anchor.id.slice(anchor.id.lastIndexOf("-") + 1);
  text.open = true;
  element.querySelectorAll(".dp-found").forEach((piece) => piece.classList.remove("dp-found"));
  text.querySelectorAll(`[data-passages~="${number}"]`).forEach((piece) => piece.classList.add("dp-found"));
  anchor.classList.add("dp-found");
  anchor.focus({ preventScroll: true });
  anchor.scrollIntoView({ block: "center", behavior: calm ? "auto" : "smooth" });
  left = cell;
}

function moveAlong(cell, key) {
  const cells = [...cell.closest(".dp-strip").querySelectorAll(".dp-cell")];
  const at = cells.indexOf(cell);
  const to = { ArrowRight: at + 1, ArrowLeft: at - 1, Home: 0, End: cells.length - 1 }[key];
  const next = cells[Math.min(Math.max(to, 0), cells.length - 1)];
  cell.tabIndex = -1;
  next.tabIndex = 0;
  next.focus();
}

element.addEventListener("click", (event) => {
  const cell = event.target.closest(".dp-cell");
  if (!cell) return;
  event.preventDefault();
  showPassage(cell);
});

element.addEventListener("keydown", (event) => {
  const cell = event.target.closest(".dp-cell");
  if (cell && ["ArrowRight", "ArrowLeft", "Home", "End"].includes(event.key)) {
    event.preventDefault();
    moveAlong(cell, event.key);
  } else if (event.key === "Escape" && left && event.target.closest(".dp-text")) {
    left.focus();
  }
});

// New results get the focus, so that they are read aloud and are in view on a phone.
watch("value", () => {
  left = null;
  const begin = element.querySelector(".dp-heading, .dp-error");
  if (!begin) return;
  begin.focus({ preventScroll: true });
  const { top, bottom } = begin.getBoundingClientRect();
  if (top < 0 || bottom > innerHeight * 0.75) begin.scrollIntoView({ block: "start", behavior: calm ? "auto" : "smooth" });
});
