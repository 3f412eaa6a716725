/**
 * An end that measures the NAT in front of it, in the namespace where it runs: `node hold-end-program.ts JSON`. It asks
 * one relay for all waits at one time, and prints one line of JSON for each that is over.
 */
import { agreementOf } from '../../../gateway/cable/agreement.ts'
import { bindKey, endId } from '../../../gateway/reach/frames/bind-frame.ts'
import { HoldCaller } from '../../../gateway/reach/nat/hold-caller.ts'
import { openUdpProbeSocket } from '../../../kernel/probing/probing.ts'
import { formatAddressPort, parseAddress, parseAddressPort } from '../../../model/addresses/addresses.ts'
import { SystemClock } from '../../../reconcile/clock.ts'

export interface HoldEndProgramInit {
  readonly clusterset: string
  readonly privateKey: string
  readonly identity: string
  readonly relay: { readonly identity: string; readonly at: string }
  readonly waitsMs: readonly number[]
}

export interface HoldEndLine {
  readonly waitMs: number
  readonly result: string
  readonly seen: string
}

const init = JSON.parse(process.argv[2] ?? '{}') as HoldEndProgramInit
const { clusterset, identity } = init
const relay = parseAddressPort(init.relay.at)
const secret = agreementOf(init.privateKey)(init.relay.identity) ?? Buffer.alloc(0)
const clock = new SystemClock()
let counter = clock.now()

for (const waitMs of init.waitsMs) {
  const caller = new HoldCaller({
    ...{ from: endId(clusterset, identity), to: endId(clusterset, init.relay.identity), relay, waitMs },
    key: bindKey({ secret, clusterset, relay: init.relay.identity, end: identity }),
    nextCounter: () => (counter += 1),
  })
  const socket = openUdpProbeSocket('0.0.0.0', 0, {
    onReady: () => undefined,
    onMessage: (bytes, from) => {
      caller.take(bytes, { address: parseAddress(from.address), port: from.port }, clock.monotonic())
    },
    onError: (error) => process.stderr.write(`${String(error)}\n`),
  })
  const turn = setInterval(() => {
    const bytes = caller.next(clock.monotonic())
    if (bytes !== undefined) socket.send(bytes, init.relay.at.split(':')[0] ?? '', relay.port)
    if (caller.state.is !== 'over') return
    clearInterval(turn)
    socket.close()
    const { result, seen } = caller.state
    const line: HoldEndLine = { waitMs, result, seen: seen === undefined ? '' : formatAddressPort(seen) }
    process.stdout.write(`${JSON.stringify(line)}\n`)
  }, 20)
}
