/** Floods of connections and watches by one member, beside the other members. */
import t from 'tap'
import { attack } from './support/attack.ts'
import { floodedBroker, underFlood } from './support/flooded-broker.ts'

const broker = await floodedBroker(t)
await attack('flood-member-connections', underFlood('connections', broker))
await attack('flood-member-reconnecting', underFlood('reconnecting', broker))
await attack('flood-member-slow-readers', underFlood('slowReaders', broker))
await attack('flood-member-interests', underFlood('interests', broker))
