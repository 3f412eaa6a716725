/** The broker as the agent's loops see it, and its driver over the wire. */
export type { BrokerLink, ContactView, PublishState, Publisher, ReplicaView } from './broker-link.ts'
export { type LinkDeps, openBrokerLink } from './protocol-link.ts'
