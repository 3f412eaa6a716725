/** The admin service of a broker: its operations, its client and its server. */
export type * from './admin-api.ts'
export { BACKUP_PART, worstOf } from './admin-api.ts'
export { type AdminClientInit, AdminUnreachableError, withAdminClient } from './admin-client.ts'
export { type AdminCaller, type AdminServer, type ServeAdminInit, serveAdmin } from './admin-server.ts'
export { adminSocket, isAdminServed } from './admin-socket.ts'
export { READING_METHODS, UNARY_METHODS, type UnaryMethod } from './admin-wire.ts'
export { localOperator } from './local-operator.ts'
