/**
 * Node's HTTP/1.1. An import of node:http would read every export of the module at once, also those that load Node's
 * fetch and WebSocket: 16 MiB and a tenth of a second for each process. Types may be imported from it as ever.
 */
export const { Agent, createServer, request } = process.getBuiltinModule('node:http')
