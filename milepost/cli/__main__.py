"""python -m milepost.cli"""

from milepost.cli import main

main()
