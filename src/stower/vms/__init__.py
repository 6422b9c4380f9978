"""VMs that change size while they run: accounting, approvals, migrations (seed 004)."""
