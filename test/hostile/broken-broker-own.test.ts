/** What a compromised broker tells a cluster about that cluster itself. */
import { attack } from './support/attack.ts'
import { each, puts, unmoved } from './support/unmoved.ts'
import { clusterRecord, endpointRecord, exported, ipRecord, sliceRecord } from './support/victim.ts'

const OWN = { index: 1, podCidrs: ['10.42.0.0/16'], serviceCidrs: ['10.43.0.0/16'] }

await attack('broker-own-pods', (t) =>
  each(
    t,
    [['10.99.0.0/16'], ['0.0.0.0/0'], [], ['10.42.0.0/17'], ['10.42.0.0/16', '192.0.2.0/24'], ['nonsense']],
    (podCidrs) => puts(clusterRecord('milano', { ...OWN, podCidrs })),
  ),
)

await attack('broker-own-services', (t) =>
  each(t, [[], ['10.96.0.0/12']], (serviceCidrs) =>
    puts(
      clusterRecord('milano', { ...OWN, serviceCidrs }),
      clusterRecord('evil', { index: 9, podCidrs: ['10.43.0.0/16'], serviceCidrs: [] }),
    ),
  ),
)

await attack('broker-own-index', (t) =>
  each(t, [2, 0, 65_535], (index) => puts(clusterRecord('milano', { ...OWN, index }))),
)

await attack('broker-own-global', (t) =>
  each(
    t,
    [['192.168.0.0/16'], ['10.43.0.0/16'], ['0.0.0.0/0'], ['244.1.0.0/24'], ['244.1.0.0/16', '244.2.0.0/16'], ['x']],
    (globalCidrs) => puts(clusterRecord('milano', { ...OWN, globalCidrs })),
  ),
)

await attack('broker-own-labels', async (t) => {
  await unmoved(t, puts(clusterRecord('milano', { ...OWN, labels: [{ key: 'region', value: 'elsewhere' }] })))
})

await attack('broker-own-export', async (t) => {
  await unmoved(
    t,
    puts(
      exported('milano', 'shop', 'node-login'),
      sliceRecord('milano', 'shop/node-login', ['192.0.2.10', '10.43.0.1', '10.42.0.5']),
      ipRecord('shop/node-login', ['245.0.0.66']),
    ),
  )
})

await attack('broker-own-endpoints', async (t) => {
  await unmoved(
    t,
    puts(
      sliceRecord('milano', 'shop/shelf', ['192.0.2.10']),
      exported('milano', 'shop', 'shelf', {
        ports: [{ name: 'http', protocol: 'TCP', port: 22, appProtocol: undefined }],
      }),
      endpointRecord('milano', { node: 'other' }),
      endpointRecord('milano', { publicKey: Buffer.alloc(32, 'evil').toString('base64') }),
    ),
  )
})

await attack('broker-own-gone', async (t) => {
  await unmoved(t, ({ broker }) => {
    broker.remove({ cluster: 'milano', kind: 'Cluster', namespace: '', name: 'milano' })
    broker.synced(['', 'milano', 'paris'], ['milano'])
  })
})

await attack('broker-own-ranges', async (t) => {
  const taken = ['10.42.0.0/16', '10.42.1.0/24', '10.40.0.0/13', '10.43.0.0/24', '0.0.0.0/0']
  await unmoved(
    t,
    puts(...taken.map((cidr, i) => clusterRecord(`evil-${i}`, { index: 20 + i, podCidrs: [cidr], serviceCidrs: [] }))),
    "overlaps this cluster's own",
  )
})
