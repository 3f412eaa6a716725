/** The broker as the agent's loops see it, and its implementation over the wire protocol. */
export type {
  AccessWord,
  BrokerLink,
  ContactView,
  PublishState,
  Publisher,
  ReplicaView,
  StatedAccess,
  StatedRelays,
} from './broker-link.ts'
export { type LinkDeps, openBrokerLink } from './protocol-link.ts'
