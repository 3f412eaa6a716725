/**
 * Node's HTTP/1.1. An import of node:http evaluates every export of the module, including those that load Node's fetch
 * and WebSocket: 16 MiB and a tenth of a second for each process. Type imports from it are free.
 */
export const { Agent, createServer, request } = process.getBuiltinModule('node:http')
