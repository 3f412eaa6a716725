/** Sockets, ports, and the path of a packet through the server. */
export { type Listener, openListener } from './listener.ts'
export { Pipeline } from './pipeline.ts'
export { giveWay, untilDue } from './port-handover.ts'
export { warmUp } from './warm-up.ts'
