/**
 * A router that maps ports by nft, in the namespace where it runs: `node port-mapping-router.ts JSON`. It prints its
 * mappings as a line of JSON when they change.
 */
import { execFileSync } from 'node:child_process'
import { createSocket } from 'node:dgram'
import { Router } from '../../gateway/reach/mapping/support/router.ts'

export interface PortMappingRouterInit {
  /** Its address inside. */
  readonly inside: string
  /** Absent: it answers each question with a flood of garbage. */
  readonly speaks?: 'pcp' | 'natPmp'
  /** Its address outside, and the port that it gives first. */
  readonly outside: string
  readonly port: number
  /** The nft map of a table of family ip: `table map`, from the port outside to the place inside. */
  readonly map: string
}

const init = JSON.parse(process.argv[2] ?? '{}') as PortMappingRouterInit
const router = new Router({
  speaks: init.speaks === undefined ? [] : [init.speaks],
  address: init.outside,
  gives: (inside, wanted) => (inside === wanted ? init.port + inside - 4500 : wanted),
  onChange: ({ client, inside, outside }, isThere) => {
    const element = isThere ? `{ ${outside} : ${client} . ${inside} }` : `{ ${outside} }`
    execFileSync('nft', [isThere ? 'add' : 'delete', 'element', 'ip', ...init.map.split(' '), element])
  },
})
const socket = createSocket('udp4')
const GARBAGE = [Buffer.from([0]), Buffer.alloc(60, 0x81), Buffer.alloc(1200, 0x82)]
let said = ''
socket.on('message', (question, { address, port }) => {
  const send = (bytes: Buffer): void => socket.send(bytes, port, address)
  if (init.speaks === undefined) for (let i = 0; i < 3000; i++) send(GARBAGE[i % GARBAGE.length] ?? question)
  const answer = router.answer(question, address)
  if (answer !== undefined) send(answer)
  const text = JSON.stringify([...router.mappings.values()])
  if (text !== said) process.stdout.write(`${text}\n`)
  said = text
})
socket.bind(5351, init.inside, () => process.stdout.write('[]\n'))
