/** The status, conditions and Events of the Gateway object. */
export { StatusLoop } from './status-loop.ts'
