/** The Gateway object's status, its conditions and events. */
export { StatusLoop } from './status-loop.ts'
