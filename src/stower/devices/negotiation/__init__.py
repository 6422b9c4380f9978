"""The scheduler's side of the negotiation with resource drivers: rules S1 to S9.

Pure and stateless: the observed objects go in, one step comes out.
"""
