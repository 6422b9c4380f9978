"""The rest of a cluster, pure as the engine is: kubelets and controllers.

They see objects and say which requests to make; a shell carries them out, be it over HTTP or on an
Api in memory.
"""
