/**
 * Breaks the table of the worker of datapath.ts as other programs might, and checks that it is noticed and repaired.
 */
import type { Test } from 'tap'
import { eventually } from '../../support/eventually.ts'
import { type Site, here, settled } from './datapath.ts'
import { serviceImport } from './site.ts'

export interface BreakAndRepairInit {
  readonly nft: 'ip' | 'ip6'
  /** A clusterset IP of a service with session affinity that has a slot 7. */
  readonly vip: string
  /** A clusterset IP that no service has yet, one for each of the first ten numbers. */
  readonly probe: (number: number) => string
  /** A prefix that belongs to no cluster. */
  readonly stranger: string
}

/**
 * Lets half a minute pass four times: first with nothing wrong, then twice with something broken, then with all
 * repaired.
 */
export async function breakAndRepair(t: Test, site: Site, init: BreakAndRepairInit): Promise<void> {
  const { nft, vip, stranger } = init
  // Each warning is counted once: a change in two steps is seen, and repaired, in one round or in two.
  const warnings = (): string[] => [
    ...new Set(site.logger.lines.filter(isRepair).map(({ fields }) => String(fields['what']))),
  ]
  const look = lookAgain(site, init)
  await look()
  t.strictSame(warnings(), [], 'nothing is wrong')
  await here('nft', 'flush', 'chain', nft, 'sealane_node', 'balance-forwarded')
  await look()
  const replaced = 'nft-table'
  t.strictSame(warnings(), [replaced], 'a chain that others emptied is found')
  await here('nft', 'delete', 'element', nft, 'sealane_node', 'slots', `{ ${vip} . tcp . 80 . 7 }`)
  await here('nft', 'add', 'element', nft, 'sealane_node', 'remote', `{ ${stranger} }`)
  await look()
  const all = [replaced, 'nft-elements']
  t.strictSame(warnings(), all, 'and elements that others took out and put in')
  const lines = site.logger.lines.length
  await look()
  const later = site.logger.lines.slice(lines).filter(isRepair)
  t.strictSame(later, [], 'then all is as it was meant')
}

function isRepair({ message }: { readonly message: string }): boolean {
  return message.startsWith('another program changed')
}

/**
 * Returns a function that lets half a minute pass and waits for two runs, each triggered by an address of its own. The
 * first run may have begun before, so one of the two has read the whole table.
 */
function lookAgain(site: Site, { nft, probe }: BreakAndRepairInit): () => Promise<void> {
  const loop = nft === 'ip' ? 'balance' : 'balance-ipv6'
  let probes = 0
  return async () => {
    site.clock.lateMs += 31_000
    for (const turn of ['first', 'second']) {
      const runs = await site.runs(loop)
      const address = probe(probes++)
      site.api.put(serviceImport('other', address))
      await settled(site, new RegExp(`no-backends: ${address} `), nft)
      await eventually(async () => (await site.runs(loop)) > runs, { say: `the ${turn} run` })
    }
  }
}
