import fc from 'fast-check'
import t from 'tap'
import { dashedAddress, endpointHostname, excessNameLength } from '../../model/dns-name.ts'
import { isDnsLabel, nameHash } from '../../model/ids.ts'
import { formatAddress } from '../../model/values/ip.ts'

t.test('length of an endpoint name', async (t) => {
  const part = (n: number): string => 'x'.repeat(n)
  const rows: [hostname: number, cluster: number, service: number, namespace: number, excess: number][] = [
    [1, 1, 1, 1, 0],
    [40, 63, 63, 63, 0],
    [41, 63, 63, 63, 1],
    [63, 63, 63, 63, 23],
    [63, 40, 63, 63, 0],
  ]
  for (const [hostname, cluster, service, namespace, excess] of rows) {
    const parts = {
      hostname: part(hostname),
      cluster: part(cluster),
      service: part(service),
      namespace: part(namespace),
    }
    t.equal(excessNameLength(parts), excess, `${hostname}+${cluster}+${service}+${namespace}`)
    const whole = `${parts.hostname}.${parts.cluster}.${parts.service}.${parts.namespace}.svc.clusterset.local`
    t.equal(Math.max(0, whole.length - 253), excess, 'counted by hand')
  }
})

t.test('hostnames', async (t) => {
  const rows: [hostname: string | undefined, address: string, want: string][] = [
    ['db-0', '10.1.0.5', 'db-0'],
    [undefined, '10.1.0.8', '10-1-0-8'],
    ['', '10.1.0.8', '10-1-0-8'],
    ['Not.A.Label', '10.1.0.8', '10-1-0-8'],
    [undefined, 'fd00::1', 'fd00--1'],
    [undefined, '::1', '0--1'],
    [undefined, 'FD00::', 'fd00--0'],
  ]
  for (const [hostname, address, want] of rows) {
    t.equal(endpointHostname({ addresses: [address], ...(hostname === undefined ? {} : { hostname }) }), want)
  }
  t.equal(endpointHostname({ addresses: [] }), undefined)
})

t.test('every address has a label', async (t) => {
  const arb = fc.oneof(
    fc.bigInt({ min: 0n, max: 2n ** 32n - 1n }).map((value) => formatAddress({ family: 4, value })),
    fc.ipV6(),
  )
  fc.assert(fc.property(arb, (text) => isDnsLabel(dashedAddress(text))))
  t.pass()
})

t.test('fingerprints', async (t) => {
  t.match(nameHash('a', 'b'), /^[0-9a-f]{16}$/)
  t.equal(nameHash('a', 'b'), nameHash('a', 'b'))
  t.not(nameHash('a-b', 'c'), nameHash('a', 'b-c'))
  t.not(nameHash('ab'), nameHash('a', 'b'))
})
