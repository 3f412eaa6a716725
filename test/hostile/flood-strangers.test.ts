/** Floods of clients without any credential. */
import t from 'tap'
import { floodRow, floodedBroker } from './support/flooded-broker.ts'

const broker = await floodedBroker(t)
await floodRow('flood-join-bodies', 'joinBodies', broker)
await floodRow('flood-handshakes', 'handshakes', broker)
await floodRow('flood-resets', 'resets', broker)
await floodRow('flood-rapid-reset', 'rapidReset', broker)
await floodRow('flood-joins', 'joins', broker)
