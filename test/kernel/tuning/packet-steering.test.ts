import { mkdirSync, readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import t from 'tap'
import { SysfsPacketSteering, processorMask } from '../../../kernel/tuning/packet-steering.ts'

t.test('masks are written as the kernel writes them', async (t) => {
  for (const [processors, want] of [
    [1, '1'],
    [2, '3'],
    [8, 'ff'],
    [32, 'ffffffff'],
    [33, '1,ffffffff'],
    [64, 'ffffffff,ffffffff'],
  ] as const) {
    t.equal(processorMask(processors), want, `${processors}`)
  }
})

function device(root: string, mask: string): string {
  const queue = join(root, 'sealane0', 'queues', 'rx-0')
  mkdirSync(queue, { recursive: true })
  writeFileSync(join(queue, 'rps_cpus'), mask)
  return join(queue, 'rps_cpus')
}

t.test('a queue that nobody has spread is spread once', async (t) => {
  const root = t.testdir()
  const file = device(root, '00,00000000\n')
  const steering = new SysfsPacketSteering(root, 4)
  t.equal(await steering.spread('sealane0'), `echo f > ${file}`)
  t.equal(readFileSync(file, 'utf8'), 'f')
  t.equal(await steering.spread('sealane0'), undefined, 'the second time there is nothing to do')
})

t.test("an operator's mask stays, one processor needs none, and what is not there is no failure", async (t) => {
  const root = t.testdir()
  const file = device(root, '2\n')
  t.equal(await new SysfsPacketSteering(root, 4).spread('sealane0'), undefined)
  t.equal(readFileSync(file, 'utf8'), '2\n')
  t.equal(await new SysfsPacketSteering(root, 1).spread('sealane0'), undefined)
  t.equal(await new SysfsPacketSteering(root, 4).spread('sealane1'), undefined)
})
