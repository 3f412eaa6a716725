/** The kernel drivers of a node, as the parts receive them. */
import { readFileSync, readdirSync } from 'node:fs'
import t from 'tap'
import { withKernel } from '../../compose/kernel.ts'

t.test('tables of both families, and no nft process before there is something to change', async (t) => {
  const before = children()
  await withKernel(async ({ nft, nft6 }) => {
    t.strictSame([nft.family, nft6.family], ['ip', 'ip6'])
    await nft.run([])
    await nft6.run([])
    t.strictSame(children(), before)
  })
})

/** Returns the ids of the child processes of this process. */
function children(): string[] {
  const own = String(process.pid)
  return readdirSync('/proc').filter((pid) => /^\d+$/.test(pid) && parentOf(pid) === own)
}

function parentOf(pid: string): string | undefined {
  try {
    return /^PPid:\s+(\d+)$/m.exec(readFileSync(`/proc/${pid}/status`, 'utf8'))?.[1]
  } catch {
    return undefined
  }
}
