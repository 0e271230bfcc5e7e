"""Recurrent layers that other operations compute: in a loop, or step by step; recognized by what the steps compute, and proved."""
