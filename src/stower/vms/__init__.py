"""VMs that change size while running: accounting, approvals and live migrations (seed 004)."""
