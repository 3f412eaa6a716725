/** Floods by clients without any credential. */
import t from 'tap'
import { attack } from './support/attack.ts'
import { floodedBroker, underFlood } from './support/flooded-broker.ts'

const broker = await floodedBroker(t)
await attack('flood-join-bodies', underFlood('joinBodies', broker))
await attack('flood-handshakes', underFlood('handshakes', broker))
await attack('flood-resets', underFlood('resets', broker))
await attack('flood-rapid-reset', underFlood('rapidReset', broker))
await attack('flood-joins', underFlood('joins', broker))
