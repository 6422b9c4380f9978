"""Runs the engine, controllers and resource drivers on a Kubernetes API server (asyncio):
reflectors list and watch, dispatchers send the writes, endpoints serve metrics and health.

Must not decide anything about pods, claims or groups, and must not know the simulator.

Exports shell_runner.run (the scheduler), controllers.run_controllers, driver.run_driver, Client
(client), Reflector (reflector) and Dispatcher (dispatcher).
"""
