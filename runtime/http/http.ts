/** The public interface of this room: the status server. */
export { type StatusServer, type StatusServerInit, serveStatus } from './http-status.ts'
export { Agent, createServer, createServerOverTls, request, requestOverTls } from './node-http.ts'
