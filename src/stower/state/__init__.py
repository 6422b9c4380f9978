"""What is known of the cluster, in columns: changed only by events and by assumptions."""
