"""`python -m docparade`: the command line where a module is run, as in `accelerate launch -m docparade train …`."""

from docparade.start import main

if __name__ == "__main__":
    main()
