"""PostgreSQL: the memory in a database on a server. Needs psycopg (spar-agent[postgres]).

store         the face: one database, opened, tended and closed
opening       takes the lock, makes the tables, raises the epoch, starts writer and readers
transactions  runs groups of work as transactions; clears up a COMMIT without an answer
care          verifies and examines a database
moving        moves a memory from a file to a database, and back
schema        the format of the database; all tables are in `schema.sql`
server        the URL, connections, errors as sentences
connection    the connection to PostgreSQL as the statements want it
pipeline      many statements in one turn of the server
full_text     the full text index

cluster/      several processes with one database: which of them owns which sessions

The statements are those of all databases; what differs from SQLite is here.
"""
