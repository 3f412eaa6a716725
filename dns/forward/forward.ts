/** Queries that upstream servers answer. */
export { Forwarder } from './forwarder.ts'
