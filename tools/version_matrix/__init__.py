"""The tests on the oldest and newest releases that we allow. Needs the standard library only."""
