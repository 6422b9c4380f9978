"""The scheduler's side of the negotiation with drivers: rules S1 to S9. Pure: what is seen goes in,
one step comes out, nothing is remembered."""
