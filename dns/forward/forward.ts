/** Forwards queries to upstream servers. */
export { Forwarder } from './forwarder.ts'
