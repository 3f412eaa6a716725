/** An end that wants a relay, in the namespace where it runs: `node relay-end-program.ts JSON`. Prints its states. */
import { createSocket } from 'node:dgram'
import { BindCaller, type CallerState } from '../../../gateway/reach/relay/bind-caller.ts'
import { formatAddress, formatAddressPort, parseAddress, parseAddressPort } from '../../../model/addresses/addresses.ts'
import { SystemClock } from '../../../reconcile/clock.ts'

export interface RelayEndProgramInit {
  readonly from: string
  readonly to: string
  /** In hexadecimal. */
  readonly key: string
  readonly relay: string
  /** The port of the socket, which shares that of the device. */
  readonly port: number
}

const init = JSON.parse(process.argv[2] ?? '{}') as RelayEndProgramInit
const clock = new SystemClock()
const caller = new BindCaller({ ...init, key: Buffer.from(init.key, 'hex'), relay: parseAddressPort(init.relay) })
const socket = createSocket('udp4')

function ask(): void {
  const question = caller.next(clock.monotonic(), clock.now())
  if (question !== undefined) socket.send(question.bytes, question.to.port, formatAddress(question.to.address))
}

function texts({ at, seen, far }: Extract<CallerState, { readonly is: 'bound' }>): Record<string, string | undefined> {
  return {
    at: formatAddressPort(at),
    seen: formatAddressPort(seen),
    far: far === undefined ? undefined : formatAddressPort(far.at),
  }
}

socket.on('message', (bytes, from) => {
  const at = { address: parseAddress(from.address), port: from.port }
  if (caller.take(bytes, at, clock.monotonic())) {
    const { state } = caller
    const bound = state.is === 'bound' ? texts(state) : {}
    process.stdout.write(`${JSON.stringify({ ...state, ...bound })}\n`)
  }
  ask()
})
socket.bind(init.port, () => setInterval(ask, 50))
