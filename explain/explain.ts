/** Finds the problems of a member or between members, and gives an overview. */
export { type Comparison, compareMembers, pairFindings } from './compare-members.ts'
export { type Diagnosis, diagnoseMember, diagnoseWorld, memberFindings } from './diagnose-member.ts'
export type { GatewayReach, LinkReach, ReachFact, ReachReport } from './reach-report.ts'
export type { ClusterOverview, GatewayOverview, LinkOverview, Overview } from './overview.ts'
