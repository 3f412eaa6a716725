/** Name of the database in the state directory. */
export const DATABASE_FILE = 'broker.db'
