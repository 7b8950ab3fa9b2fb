"""How fast a ranker reads.

`workload` counts what there is to read, `systems` and `bi_encoders` are the ways to read it, and `timing` is the clock;
`speed` compares the systems, `growth` varies the amount of work, and `charts` draws both.
"""
