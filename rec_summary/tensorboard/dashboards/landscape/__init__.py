"""Loss landscapes to the dashboards Mesh, Images and Text."""
