/** Looks at a host: its modules, tools, interfaces. */
export { type HostLook, type HostTrouble, addressesHere, lookAtHost } from './look-at-host.ts'
