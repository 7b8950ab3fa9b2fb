"""The commands of `docparade`, one file each."""
