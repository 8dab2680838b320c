package engine

// What the scenarios are worth: each of these faults was put into the engine once, and the tests named beside it failed.
//
//	mutation                                                        caught by
//	-----------------------------------------------------------------------------------------------------------------------
//	the offset committed is the position, not the frontier          CommitStaysBelowTheUnfinished, RevokeGivesUpTheQueue
//	a commit's codes are not read partition by partition            RefusedPartitionIsSentAgain, CommitErrors
//	more than one commit in flight                                  CommitsAreMonotoneAndOneAtATime
//	Commit.Each asks for no commit                                  CommitPolicies
//	a drain waits for nothing                                       RevokeGivesUpTheQueue
//	a drain has no deadline                                         DrainDeadline
//	a drain does not commit                                         CommitPrecedesLeave
//	a drain keeps what is parked for a retry                        DrainGivesUpRetries
//	a revoke does not wait for the stop's drain                     StopWhileAnotherJoins
//	a revoke under another member id commits (1)                    StaleCommitDoesNotRewind
//	a loss does not end the epoch                                   StaleCommitDoesNotRewind, StuckHandler
//	partitions that are lost here and not at the client stay so     CommitErrors
//	a partition that is assigned twice begins another epoch         AssignedTwice
//	completions of an ended epoch count                             BackToTheSameMember, DrainDeadline
//	the outcome of an ended epoch's handler is carried out          OutcomeAfterLoss
//	a lane has another identity in each epoch                       BackToTheSameMember, StuckHandler, RandomSteps
//	nothing is resumed at the client when an epoch begins or ends   PausedPartitionsResume
//	any answer of the coordinator ends a suspension                 OneAnswerProvesNothing, SuspendedAndThrownOut
//	a suspension lets waiting records start                         SuspendedAndResumed
//	the session counts from the sending of an answered JoinGroup     SlowJoinDoesNotSuspend
//	an attempt is judged by the epoch's present context             SlowReturnAfterSuspension
//	transaction markers are not tracked                             HolesInOffsets
//	records behind a marker get the numbers of those before it      MarkersWithinAFetch
//	an open transaction is called a stalled fetch                   HangingTransaction
//	a topic that was created again is not noticed                   TopicIsCreatedAgain
//	a failure does not end a batch under OrderPartition             BatchByPartition
//	a failed output does not end a batch under OrderPartition       BatchOutputFails
//	a record is settled before its outputs are acknowledged         Outputs
//	Run goes on after a stop during its checks                      StopWhileStarting
//	Stop waits for Run whatever its context says                    StopInEveryState
//	a hard stop ends no context, or does not cut the drain short    HardStop
//	Status shows the bytes of the last fetch                        RebalanceChurn, RandomSteps
//	nothing of an earlier window is passed over                     FinishedIsNotRedone, RedoneAtFullSpeed, ClaimCarriesOn, KilledByARecord
//	a claim does not carry the window of the owner before           ClaimCarriesOn, JoinedWindow
//	a window is believed whatever the committed offset is           WhatACommitSays
//	a window is believed whatever its topic's id is                 WhatACommitSays, RecreatedTopicIsHandledWhole
//	the id of the topic that is fetched is not looked at (2)        RecreatedTopicIsHandledWhole
//	a window is believed whatever the leader epoch is               WhatACommitSays, TruncatedAndWrittenAnew, JoinedWindow
//	a renewed epoch forgets what the one before had settled         TruncatedAndWrittenAnew
//	a window lists only the first record that is undone             ClaimCarriesOn, MetadataDoesNotFit, JoinedWindow
//	a window is taken amid a delivery (2)                           JoinedWindow
//	a run reaches into offsets that no run of before covers (2)     JoinedWindow
//	an offset whose metadata was refused is not sent again          MetadataDoesNotFit
//	metadata that was refused makes later ones no shorter           MetadataDoesNotFit
//	commits go out only where the frontier moves                    QuietCommits, FinishedIsNotRedone
//	commits go out at each interval                                 QuietCommits
//	nothing is ever suspected                                       CrashLoop, KilledByARecord
//	one unclean end is enough for a suspicion                       UncleanEndsInARow, ClaimCarriesOn
//	an idle partition is suspected                                  UncleanEndsInARow
//	a claim does not count itself as unclean                        CrashLoop, KilledByARecord
//	a clean end, or progress, does not clear the count              UncleanEndsInARow, CrashLoop
//	a drain that is not over is a clean end (2)                     DeathInADrainIsUnclean
//	suspected records run as many at a time as others               SuspectsAreAnnounced
//	batches stay whole under suspicion, or are not announced        SuspectsAreAnnounced
//	a suspected record starts without its announcement              SuspectsAreAnnounced, CrashLoop
//	a suspected record starts though its announcement failed        AnnouncementFails
//	an announcement that failed counts as a start (2)               AnnouncementFails
//	announced starts are not counted on by the next process         CrashLoop, KilledByARecord
//	announced starts have no limit                                  CrashLoop, KilledByARecord
//	a suspicion is never lifted                                     SuspicionIsLifted
//	Unhold gives no new starts to a record that was held (2)        UnholdAfterCrashes
//	a business key is marked before its handler runs                 CopiesAreHandledOnce, NoMarkWithoutSuccess
//	a record is settled before its mark is durable                  CopiesAreHandledOnce, StopWhileTheStoreHangs
//	the window found at an assignment is not used                   RowsAtFullSpeed, RowsWhenQuiet, StoreIsRolledBack
//	a row counts whatever store the commit names                    RowsAreIgnoredWhere, RowsStayBehind, RowBeforeClaim
//	the claim names the store before its row is durable             RowBeforeClaim
//	a store that was rolled back is believed                        StoreIsRolledBack
//	a failure does not release its business key                     RetryFindsItDone, NoMarkWithoutSuccess, BatchWithCopies
//	the rows of a failed group are not written again                RowBeforeClaim, RowsOfAFailedGroup
//	commits do not name the store while a row is being written      RowsAtFullSpeed (most seeds)
//	a record whose outputs have failed keeps its claim              ClaimEndsWithTheTenure
//	an empty business key is one                                    KeysThatAreNone
//	copies stay in a batch under OrderPartition                     CopiesAreHandledOnce
//	what follows the failure in a lost batch is marked              EndOfALostBatch, RandomStepsWithStores
//	a store that can't write stops nothing, or commits go on        DiskIsFull
//	a known key with another payload is passed over                 PayloadDiffers
//	marks below a rewind with --forget-dedupe count                 BypassedMarks
//	nobody hears that a key is free                                 CopiesAreHandledOnce, SecondCopyInFlightWaits
//	a key that can't be looked up counts as new                     StoreCanNotBeRead
//	a store that can't be repaired ends nothing                     StoreFailsForGood
//	a record starts after waiting for room, whatever came up        NothingStartsAfterWaitingForRoom
//	a key is marked before its outputs are acknowledged             MarkAfterOutputs
//	who waits for a key is remembered when it is given up           WaitersAreForgotten
//	a drain leaves workers waiting for room                         StopWhileTheStoreHangs, RevokeWhileTheStoreHangs
//
// (1) with the check in the revoke and the fence of the commit both gone, and the client's own CommitOffsets, which rejoins under
// another member id, in place of the plain request: any one of the three is enough.
//
// (2) as the engine was when the test was written.
