/**
 * An end that measures of what kind the NAT in front of it is, in the namespace where it runs:
 * `node sight-end-program.ts JSON`. It prints one line of JSON for each time at which it knows more.
 */
import { agreementOf } from '../../../gateway/cable/agreement.ts'
import { NatWatch } from '../../../gateway/reach/nat/nat-watch.ts'
import { openUdpProbeSocket } from '../../../kernel/probing/probing.ts'
import { parseAddress } from '../../../model/addresses/addresses.ts'
import { SystemClock } from '../../../reconcile/clock.ts'

export interface SightEndProgramInit {
  readonly clusterset: string
  readonly privateKey: string
  readonly identity: string
  readonly relays: readonly { readonly cluster: string; readonly identity: string; readonly address: string }[]
}

const init = JSON.parse(process.argv[2] ?? '{}') as SightEndProgramInit
const { clusterset, identity } = init
const watch = new NatWatch({
  ...{ clock: new SystemClock(), openSocket: openUdpProbeSocket, mayProbe: () => true, afterMs: 0 },
  onChange: () => process.stdout.write(`${JSON.stringify(watch.sights)}\n`),
})
const relays = init.relays.map((relay) => ({ ...relay, address: parseAddress(relay.address) }))
const facts = {
  ...{ own: { clusterset, identity, agree: agreementOf(init.privateKey) }, relays },
  ...{ seen: [], ownAddresses: new Set<string>() },
}
setInterval(() => watch.look(facts), 500)
watch.look(facts)
