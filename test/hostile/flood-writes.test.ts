/** Writes of one member, against the others. */
import t from 'tap'
import { floodRow, floodedBroker } from './support/flooded-broker.ts'

const broker = await floodedBroker(t)
await floodRow('flood-member-slices', 'slices', broker)
await floodRow('flood-member-statuses', 'statuses', broker)
await floodRow('flood-member-records', 'records', broker)
