"""The commands besides jobs and studies, each whole in its folder. The core imports none of them."""
