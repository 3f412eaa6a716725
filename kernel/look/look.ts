/** Reads the network state of a host: devices, settings, firewall rules, routes. */
export { type HostLook, type HostTrouble, addressesHere, lookAtHost } from './look-at-host.ts'
