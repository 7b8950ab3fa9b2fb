"""Work on long lists: shared by the processes of a group, and continued after an interruption."""
