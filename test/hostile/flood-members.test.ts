/** Connections and watches of one member, against the others. */
import t from 'tap'
import { floodRow, floodedBroker } from './support/flooded-broker.ts'

const broker = await floodedBroker(t)
await floodRow('flood-member-connections', 'connections', broker)
await floodRow('flood-member-reconnecting', 'reconnecting', broker)
await floodRow('flood-member-slow-readers', 'slowReaders', broker)
