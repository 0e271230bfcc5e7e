"""Described models as streams: a sequence comes in pieces, and each call goes on from the states that the one before it gave."""
