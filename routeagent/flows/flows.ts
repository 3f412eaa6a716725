/** Who calls whom: counts and samples of calls between this node's pods, services and other clusters. */
export { FlowLoop } from './flow-loop.ts'
export { fixedStatements, planFlowsTable } from './plan-flows-table.ts'
