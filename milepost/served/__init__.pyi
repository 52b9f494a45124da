from milepost.served.connection import connect as connect
