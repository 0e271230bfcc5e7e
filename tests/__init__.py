"""The proof: contract, literal and native tests, each stronger than the one before."""
