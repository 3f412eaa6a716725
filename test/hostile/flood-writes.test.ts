/** Floods of writes by one member, beside the other members. */
import t from 'tap'
import { attack } from './support/attack.ts'
import { floodedBroker, underFlood } from './support/flooded-broker.ts'

const broker = await floodedBroker(t)
await attack('flood-member-slices', underFlood('slices', broker))
await attack('flood-member-statuses', underFlood('statuses', broker))
await attack('flood-member-records', underFlood('records', broker))
